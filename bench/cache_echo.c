/* The floor of bench.cache: a ROUTER that answers at once, and a DEALER that keeps requests on their way.

   cache_echo serve URL VALUE_BYTES TRAILING_BYTES,TRAILING_BYTES [SERVER_PRIVATE]
       answers every request with [id, "=", value, 6 bytes, two more frames of so many bytes]; of 0 bytes: no such frame.
       The first line on standard output is "ready"
   cache_echo ask URL FILE OUTSTANDING ROUNDS [SERVER_PUBLIC CLIENT_PUBLIC CLIENT_PRIVATE]
       FILE: requests, each as one byte with its number of frames, then for each frame 4 bytes of length (big-endian) and
       the frame. All are sent once per round. Prints "COUNT NANOSECONDS WRONG": WRONG counts answers that are no value.
*/
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <zmq.h>

#define FRAMES_MAX 16

static void die(const char *what) { fprintf(stderr, "%s: %s\n", what, zmq_strerror(zmq_errno())); exit(1); }

static int serve(int argc, char **argv) {
    void *context = zmq_ctx_new(), *socket = zmq_socket(context, ZMQ_ROUTER);
    int value_bytes = atoi(argv[3]), first_bytes = 0, last_bytes = 0, on = 1;
    if (sscanf(argv[4], "%d,%d", &first_bytes, &last_bytes) != 2) { fprintf(stderr, "TRAILING_BYTES\n"); exit(2); }
    char *value = calloc(1, value_bytes + 1), *first = calloc(1, first_bytes + 1), *last = calloc(1, last_bytes + 1);
    if (argc > 5) {
        zmq_setsockopt(socket, ZMQ_CURVE_SERVER, &on, sizeof on);
        if (zmq_setsockopt(socket, ZMQ_CURVE_SECRETKEY, argv[5], 40)) die("key");
    }
    if (zmq_bind(socket, argv[2])) die(argv[2]);
    puts("ready"); fflush(stdout);
    for (;;) {
        zmq_msg_t identity, id, rest;
        zmq_msg_init(&identity); zmq_msg_init(&id); zmq_msg_init(&rest);
        if (zmq_msg_recv(&identity, socket, 0) < 0) die("recv");
        if (!zmq_msg_more(&identity) || zmq_msg_recv(&id, socket, 0) < 0) continue;
        int more = zmq_msg_more(&id);
        while (more) { zmq_msg_recv(&rest, socket, 0); more = zmq_msg_more(&rest); }
        zmq_msg_close(&rest);
        zmq_msg_send(&identity, socket, ZMQ_SNDMORE);
        zmq_msg_send(&id, socket, ZMQ_SNDMORE);
        zmq_send(socket, "=", 1, ZMQ_SNDMORE);
        zmq_send(socket, value, value_bytes, ZMQ_SNDMORE);
        zmq_send(socket, "\1\2\3\4\5\6", 6, first_bytes || last_bytes ? ZMQ_SNDMORE : 0);
        if (first_bytes) zmq_send(socket, first, first_bytes, last_bytes ? ZMQ_SNDMORE : 0);
        if (last_bytes) zmq_send(socket, last, last_bytes, 0);
    }
}

static unsigned char *content; static long content_bytes;

static long send_one(void *socket, long at) {
    int frames = content[at++];
    for (int i = 0; i < frames; i++) {
        uint32_t bytes = (uint32_t)content[at] << 24 | content[at + 1] << 16 | content[at + 2] << 8 | content[at + 3];
        if (zmq_send(socket, content + at + 4, bytes, i + 1 < frames ? ZMQ_SNDMORE : 0) < 0) die("send");
        at += 4 + bytes;
    }
    return at;
}

static int ask(int argc, char **argv) {
    void *context = zmq_ctx_new(), *socket = zmq_socket(context, ZMQ_DEALER);
    int none = 0, outstanding = atoi(argv[4]), rounds = atoi(argv[5]), wait = 20000;
    zmq_setsockopt(socket, ZMQ_LINGER, &none, sizeof none);
    zmq_setsockopt(socket, ZMQ_SNDHWM, &none, sizeof none);
    zmq_setsockopt(socket, ZMQ_RCVTIMEO, &wait, sizeof wait);
    if (argc > 8) {
        zmq_setsockopt(socket, ZMQ_CURVE_SERVERKEY, argv[6], 40);
        zmq_setsockopt(socket, ZMQ_CURVE_PUBLICKEY, argv[7], 40);
        if (zmq_setsockopt(socket, ZMQ_CURVE_SECRETKEY, argv[8], 40)) die("key");
    }
    FILE *file = fopen(argv[3], "rb");
    if (!file) { perror(argv[3]); return 1; }
    fseek(file, 0, SEEK_END); content_bytes = ftell(file); rewind(file);
    content = malloc(content_bytes);
    if (fread(content, 1, content_bytes, file) != (size_t)content_bytes) die("read");
    if (zmq_connect(socket, argv[2])) die(argv[2]);
    struct timespec begin, end;
    long at = 0, sent = 0, heard = 0, wrong = 0, round = 0;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    for (;;) {
        while (round < rounds && sent - heard < outstanding) {
            at = send_one(socket, at); sent++;
            if (at >= content_bytes) { at = 0; round++; }
        }
        if (heard == sent) break;
        zmq_msg_t part; int more = 1, frames = 0, value = 0;
        while (more) {
            zmq_msg_init(&part);
            if (zmq_msg_recv(&part, socket, 0) < 0) die("answer");
            if (frames == 1 && zmq_msg_size(&part) == 1) value = *(char *)zmq_msg_data(&part) == '=';
            frames++; more = zmq_msg_more(&part);
            zmq_msg_close(&part);
        }
        if (frames == 1) continue; /* a keep-alive */
        heard++; wrong += !value;
    }
    clock_gettime(CLOCK_MONOTONIC, &end);
    printf("%ld %lld %ld\n", heard, (end.tv_sec - begin.tv_sec) * 1000000000LL + end.tv_nsec - begin.tv_nsec, wrong);
    return 0;
}

int main(int argc, char **argv) {
    if (argc >= 5 && !strcmp(argv[1], "serve")) return serve(argc, argv);
    if (argc >= 6 && !strcmp(argv[1], "ask")) return ask(argc, argv);
    fprintf(stderr, "usage: see the head of cache_echo.c\n");
    return 2;
}
