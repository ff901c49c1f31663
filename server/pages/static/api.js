// Swagger UI on this server's own OpenAPI description; nothing is sent to a validator elsewhere.
const dark = matchMedia("(prefers-color-scheme: dark)");
const paint = () => document.documentElement.classList.toggle("dark-mode", dark.matches);
dark.addEventListener("change", paint);
paint();
SwaggerUIBundle({
  url: "/api/v1/openapi.json",
  dom_id: "#api",
  deepLinking: true,
  defaultModelsExpandDepth: -1,
  docExpansion: "none",
  validatorUrl: null,
});
