// Package web is the HTTP server behind `ratebatch serve`: a JSON API over
// parameterized queries and the web application beside it. The browser never
// sends SQL. openapi.yaml is the contract; a test holds every answer against it.
//
// Decisions:
//
//   - Without authentication the server listens on loopback only and answers
//     only to loopback's names, so that a page of another site cannot reach it
//     through a name of its own (DNS rebinding).
//   - Tokens are kept as SHA-256 of 32 random bytes: nothing to guess, so
//     nothing to slow down; comparison looks at every token.
//   - A token of one project is a filter in every query, and what belongs to
//     another project is 404 and not 403, which would say that it exists.
//   - Money is compared with the commits before it is shown: count and total of
//     each project's lines, day by day. Line digests are compared by exports and
//     downloads; for a sum they would cost ten times the sum. A difference is an
//     error, never a figure.
//   - Sums of a day are kept until its commits change. Serve reads them ahead, so
//     a page does not wait for the first reader.
//   - Answers name neither statements nor files; the log does, under the request
//     id that the answer bears.
package web
