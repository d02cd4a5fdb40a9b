import { HashbrownProvider } from "@hashbrownai/react";
import { createRoot } from "react-dom/client";
import { App } from "./app";
import { transport } from "./server";
import "./style.css";

createRoot(document.getElementById("root")!).render(
  <HashbrownProvider transport={transport}>
    <App />
  </HashbrownProvider>,
);
