// Search runs in a worker, and browsers start none for a page that is opened from disk. There, the file of the worker
// runs in an empty frame of the page instead. What search needs of a worker is all that is here.
if (location.protocol === "file:") {
  window.Worker = class {
    constructor(url) {
      this.onmessage = null;
      this.onerror = null;
      this.waiting = []; // until the file is loaded
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.documentElement.append(this.frame);
      const inside = this.frame.contentWindow;
      inside.postMessage = (data) => setTimeout(() => this.onmessage && this.onmessage({ data }));
      const script = inside.document.createElement("script");
      script.src = new URL(url, location);
      script.onload = () => this.waiting.splice(0).forEach((data) => inside.onmessage({ data }));
      script.onerror = (event) => this.onerror && this.onerror(event);
      inside.document.head.append(script);
    }

    postMessage(data) {
      const inside = this.frame.contentWindow;
      if (inside.onmessage) setTimeout(() => inside.onmessage({ data }));
      else this.waiting.push(data);
    }

    terminate() {
      this.frame.remove();
    }
  };
}
