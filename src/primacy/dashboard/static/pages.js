// The pages, in the order of the menu. A page is one module: {id, title, build(context) -> {root, update, tick?, close?}}.

import { overview } from "./pages/overview.js";
import { network } from "./pages/network.js";
import { nodes } from "./pages/nodes.js";
import { timelinePage } from "./pages/timeline.js";
import { events } from "./pages/events.js";
import { elections } from "./pages/elections.js";
import { leases } from "./pages/leases.js";
import { cache } from "./pages/cache.js";
import { slots } from "./pages/slots.js";
import { audit } from "./pages/audit.js";
import { drills } from "./pages/drills.js";

export const PAGES = [overview, network, nodes, timelinePage, events, drills, elections, leases, slots, cache, audit];
