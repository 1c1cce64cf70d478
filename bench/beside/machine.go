package main

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
)

// machine describes this machine in one line.
func machine() string {
	kernel, _ := os.ReadFile("/proc/sys/kernel/osrelease") // empty if unknown
	return fmt.Sprintf("%d virtual cores (%s), %s of memory, %s, Linux %s, %s", runtime.NumCPU(),
		procField("/proc/cpuinfo", "model name"), memory(), release(), strings.TrimSpace(string(kernel)), runtime.Version())
}

func memory() string {
	kb, _ := strconv.Atoi(strings.Fields(procField("/proc/meminfo", "MemTotal") + " 0")[0])
	return fmt.Sprintf("%.0f GiB", float64(kb)/(1<<20))
}

func release() string {
	text, _ := os.ReadFile("/etc/os-release")
	_, rest, _ := strings.Cut(string(text), `PRETTY_NAME="`)
	name, _, _ := strings.Cut(rest, `"`)
	return name
}

func procField(file, name string) string {
	text, _ := os.ReadFile(file)
	_, rest, _ := strings.Cut(string(text), name)
	line, _, _ := strings.Cut(rest, "\n")
	return strings.TrimSpace(strings.TrimLeft(strings.TrimSpace(line), ":"))
}

// load returns the machine's load average of the last minute.
func load() float64 {
	text, _ := os.ReadFile("/proc/loadavg")
	first, _, _ := strings.Cut(string(text), " ")
	value, _ := strconv.ParseFloat(first, 64)
	return value
}
