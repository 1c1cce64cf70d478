//go:build unix && !linux

package storm

import "os/exec"

// imitate does nothing: this system has no namespaces.
func imitate(*exec.Cmd) {}
