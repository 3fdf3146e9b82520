// The page's scripts are parts of one function (report/page.rs): a name of one part is known in all. That each name exists is what tsc
// checks, and a function of one part may well be used in another one alone.
import js from "@eslint/js";

export default [
  js.configs.recommended,
  {
    languageOptions: { ecmaVersion: 2022, sourceType: "script" },
    linterOptions: { reportUnusedDisableDirectives: "error" },
    rules: {
      "no-undef": "off",
      "no-unused-vars": ["error", { vars: "local", caughtErrors: "none" }],
      "eqeqeq": "error",
      "no-var": "error",
      "prefer-const": ["error", { destructuring: "all" }],
      "no-restricted-properties": ["error", ...["innerHTML", "outerHTML", "insertAdjacentHTML", "write"].map((property) => ({ property, message: "Text of the traced program only ever becomes text nodes." }))],
    },
  },
];
