//go:build tools

// Package tools pins h2spec, the HTTP/2 conformance suite, and what it is built from.
package tools

import _ "github.com/summerwind/h2spec/cmd/h2spec"
