package main

import (
	"archive/tar"
	"archive/zip"
	"compress/gzip"
	"crypto/sha256"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// archive packs a binary and its documents: in a zip for Windows, in a tar.gz for other systems.
func (r *release) archive(name, binary, extras string) (err error) {
	kind := ".tar.gz"
	if strings.HasSuffix(binary, ".exe") {
		kind = ".zip"
	}
	file, err := os.Create(r.path(name + kind))
	if err != nil {
		return err
	}
	defer func() {
		if failed := file.Close(); err == nil {
			err = failed
		}
	}()
	members := map[string]string{name + "/" + filepath.Base(binary): binary}
	for _, paper := range []string{"README.md", "LICENSE", "CHANGELOG.md"} {
		members[name+"/"+paper] = filepath.Join(r.root, paper)
	}
	err = filepath.WalkDir(extras, func(at string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			inside, _ := filepath.Rel(extras, at)
			members[path.Join(name, filepath.ToSlash(inside))] = at
		}
		return err
	})
	if err != nil {
		return err
	}
	if kind == ".zip" {
		return writeZip(file, members)
	}
	return writeTar(file, members)
}

// path returns the path of a file of the release, and notes the file for the checksums.
func (r *release) path(name string) string {
	r.files = append(r.files, name)
	return filepath.Join(r.out, name)
}

func sorted(members map[string]string) []string {
	names := make([]string, 0, len(members))
	for name := range members {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func writeZip(to io.Writer, members map[string]string) error {
	z := zip.NewWriter(to)
	for _, name := range sorted(members) {
		w, err := z.Create(name)
		if err == nil {
			err = copyFile(w, members[name])
		}
		if err != nil {
			return err
		}
	}
	return z.Close()
}

func writeTar(to io.Writer, members map[string]string) error {
	packed := gzip.NewWriter(to)
	t := tar.NewWriter(packed)
	for _, name := range sorted(members) {
		info, err := os.Stat(members[name])
		if err != nil {
			return err
		}
		mode := int64(0o644)
		if info.Mode()&0o111 != 0 {
			mode = 0o755
		}
		if err := t.WriteHeader(&tar.Header{Name: name, Mode: mode, Size: info.Size(), Format: tar.FormatPAX}); err != nil {
			return err
		}
		if err := copyFile(t, members[name]); err != nil {
			return err
		}
	}
	if err := t.Close(); err != nil {
		return err
	}
	return packed.Close()
}

func copyFile(to io.Writer, from string) error {
	file, err := os.Open(from)
	if err != nil {
		return err
	}
	defer file.Close()
	_, err = io.Copy(to, file)
	return err
}

// sum writes SHA256SUMS in the format of sha256sum -c.
func (r *release) sum() error {
	slices.Sort(r.files)
	var text strings.Builder
	for _, name := range r.files {
		hash := sha256.New()
		if err := copyFile(hash, filepath.Join(r.out, name)); err != nil {
			return err
		}
		fmt.Fprintf(&text, "%x  %s\n", hash.Sum(nil), name)
	}
	return os.WriteFile(filepath.Join(r.out, "SHA256SUMS"), []byte(text.String()), 0o644)
}
