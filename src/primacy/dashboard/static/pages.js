// The pages, in the order of the menu. A page is one module: {id, title, build(context) -> {root, update, tick?, close?}}.

import { overview } from "./pages/overview.js";
import { network } from "./pages/network.js";
import { nodes } from "./pages/nodes.js";
import { events } from "./pages/events.js";

export const PAGES = [overview, network, nodes, events];
