//go:build tools

// Package tools pins actionlint, which checks the workflows in .github, and what it is built from.
package tools

import _ "github.com/rhysd/actionlint/cmd/actionlint"
