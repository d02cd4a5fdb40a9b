import react from "@vitejs/plugin-react";
import { defineConfig } from "vite";

// `npm run dev` serves the page with hot reload; requests go to the server of server.py.
const server = "http://127.0.0.1:8000";

export default defineConfig({
  plugins: [react()],
  server: { proxy: { "/hashbrown": server, "/v1": server } },
  build: { chunkSizeWarningLimit: 4000 },
});
