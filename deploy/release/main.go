// Command release builds a release in a folder: binaries for the usual systems, in archives
// with manual pages and completions, Debian packages, a bill of materials (CycloneDX) for each
// binary, and the checksums of all files.
//
//	go -C deploy run ./release -version v0.1.0 -out ../dist
//
// It runs the go command and writes to the folder. It uploads nothing.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"github.com/tuskqueue/tusk/cli"
)

// systems are the systems that releases are built for.
const systems = "linux/amd64 linux/arm64 darwin/amd64 darwin/arm64 windows/amd64 freebsd/amd64"

// release is one build of everything.
type release struct {
	root    string // of the repository
	out     string
	version string // for example v0.1.0
	systems []string
	files   []string // the files made so far, for the checksums
}

func main() {
	r := release{}
	flag.StringVar(&r.root, "root", "..", "the repository")
	flag.StringVar(&r.out, "out", "../dist", "where to; it must not exist, or be empty")
	flag.StringVar(&r.version, "version", "", "vMAJOR.MINOR.PATCH")
	only := flag.String("systems", systems, "what to build for")
	flag.Parse()
	r.systems = strings.Fields(*only)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := r.make(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func (r *release) make(ctx context.Context) error {
	if !strings.HasPrefix(r.version, "v") || len(r.systems) == 0 {
		return errors.New("-version vMAJOR.MINOR.PATCH is needed, and at least one system")
	}
	if left, _ := os.ReadDir(r.out); len(left) > 0 {
		return fmt.Errorf("%s is not empty", r.out)
	}
	extras := filepath.Join(r.out, "extras")
	if err := writeExtras(extras); err != nil {
		return err
	}
	for _, system := range r.systems {
		if err := r.build(ctx, system, extras); err != nil {
			return fmt.Errorf("%s: %w", system, err)
		}
	}
	if err := os.RemoveAll(extras); err != nil {
		return err
	}
	return r.sum()
}

// build makes everything for one system.
func (r *release) build(ctx context.Context, system, extras string) error {
	goos, goarch, ok := strings.Cut(system, "/")
	if !ok {
		return errors.New("want GOOS/GOARCH")
	}
	name := fmt.Sprintf("tusk_%s_%s_%s", strings.TrimPrefix(r.version, "v"), goos, goarch)
	binary := filepath.Join(r.out, name, "tusk")
	if goos == "windows" {
		binary += ".exe"
	}
	absolute, err := filepath.Abs(binary)
	if err != nil {
		return err
	}
	build := exec.CommandContext(ctx, "go", "-C", r.root, "build", "-trimpath", "-ldflags=-s -w", "-o", absolute,
		"./cmd/tusk")
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+goos, "GOARCH="+goarch)
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		return err
	}
	if err := r.bill(binary, name); err != nil {
		return err
	}
	if goos == "linux" {
		if err := r.deb(binary, goarch, extras); err != nil {
			return err
		}
	}
	if err := r.archive(name, binary, extras); err != nil {
		return err
	}
	fmt.Println(name)
	return os.RemoveAll(filepath.Join(r.out, name))
}

// writeExtras writes manual pages and completions.
func writeExtras(folder string) error {
	man, completions := filepath.Join(folder, "man"), filepath.Join(folder, "completions")
	if err := cmp.Or(os.MkdirAll(man, 0o755), os.MkdirAll(completions, 0o755)); err != nil {
		return err
	}
	root := cli.Command()
	root.DisableAutoGenTag = true
	if err := doc.GenManTree(root, &doc.GenManHeader{Title: "TUSK", Section: "1", Source: "Tusk"}, man); err != nil {
		return err
	}
	return complete(root, completions)
}

func complete(root *cobra.Command, folder string) error {
	return errors.Join(
		root.GenBashCompletionFileV2(filepath.Join(folder, "tusk.bash"), true),
		root.GenZshCompletionFile(filepath.Join(folder, "_tusk")),
		root.GenFishCompletionFile(filepath.Join(folder, "tusk.fish"), true),
	)
}
