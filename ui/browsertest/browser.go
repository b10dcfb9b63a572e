// Package browsertest tries the inspector (package ui) in a real browser, on a database that another process writes at the same time. It is a
// module of its own, so that nobody who uses ctxpage links a browser's protocol. Its tests skip, and say why, where there is no Chromium.
package browsertest
