package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/deb"
	"github.com/goreleaser/nfpm/v2/files"
)

// deb makes a Debian package: the binary, its units, manual pages and completions.
func (r *release) deb(binary, arch, extras string) (err error) {
	version := strings.TrimPrefix(r.version, "v")
	from := func(name string) string { return filepath.Join(r.root, "deploy", name) }
	contents := files.Contents{
		{Source: binary, Destination: "/usr/bin/tusk", FileInfo: &files.ContentFileInfo{Mode: 0o755}},
		{Source: from("systemd/tusk-serve.service"), Destination: "/usr/lib/systemd/system/tusk-serve.service"},
		{Source: from("systemd/tusk-work@.service"), Destination: "/usr/lib/systemd/system/tusk-work@.service"},
		{Source: from("deb/sysusers.conf"), Destination: "/usr/lib/sysusers.d/tusk.conf"},
		{Source: from("deb/environment"), Destination: "/etc/tusk/environment", Type: files.TypeConfigNoReplace,
			FileInfo: &files.ContentFileInfo{Mode: 0o640}},
		{Source: filepath.Join(extras, "completions/tusk.bash"), Destination: "/usr/share/bash-completion/completions/tusk"},
		{Source: filepath.Join(extras, "completions/_tusk"), Destination: "/usr/share/zsh/vendor-completions/_tusk"},
		{Source: filepath.Join(extras, "completions/tusk.fish"),
			Destination: "/usr/share/fish/vendor_completions.d/tusk.fish"},
		{Source: filepath.Join(r.root, "LICENSE"), Destination: "/usr/share/doc/tusk/copyright"},
	}
	pages, err := filepath.Glob(filepath.Join(extras, "man", "*.1"))
	if err != nil {
		return err
	}
	for _, page := range pages {
		contents = append(contents, &files.Content{Source: page, Destination: "/usr/share/man/man1/" + filepath.Base(page)})
	}
	info := nfpm.WithDefaults(&nfpm.Info{
		Name: "tusk", Arch: arch, Platform: "linux", Version: version, Section: "admin", Priority: "optional",
		Maintainer:  "Tusk maintainers <maintainers@tusk.invalid>",
		Description: "A task queue and scheduler that lives in the database you already run",
		License:     "Apache-2.0",
		Overridables: nfpm.Overridables{
			Contents: contents, Recommends: []string{"systemd", "ca-certificates"},
			Scripts: nfpm.Scripts{PostInstall: from("deb/postinst")},
		},
	})
	packager, err := nfpm.Get("deb")
	if err != nil {
		return err
	}
	file, err := os.Create(r.path(fmt.Sprintf("tusk_%s_%s.deb", version, arch)))
	if err != nil {
		return err
	}
	defer func() {
		if failed := file.Close(); err == nil {
			err = failed
		}
	}()
	return packager.Package(info, file)
}
