package main

import (
	"debug/buildinfo"
	"os"

	"github.com/CycloneDX/cyclonedx-go"
)

// bill writes the bill of materials of a binary, from what the Go linker recorded in it.
func (r *release) bill(binary, name string) (err error) {
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return err
	}
	bom := cyclonedx.NewBOM()
	bom.Metadata = &cyclonedx.Metadata{Component: &cyclonedx.Component{
		Type: cyclonedx.ComponentTypeApplication, Name: info.Main.Path, Version: r.version,
		PackageURL: "pkg:golang/" + info.Main.Path + "@" + r.version,
	}}
	components := []cyclonedx.Component{{
		Type: cyclonedx.ComponentTypeLibrary, Name: "std", Version: info.GoVersion, PackageURL: "pkg:golang/std@" +
			info.GoVersion,
	}}
	for _, module := range info.Deps {
		if module.Replace != nil {
			module = module.Replace
		}
		components = append(components, cyclonedx.Component{
			Type: cyclonedx.ComponentTypeLibrary, Name: module.Path, Version: module.Version,
			PackageURL: "pkg:golang/" + module.Path + "@" + module.Version,
		})
	}
	bom.Components = &components
	file, err := os.Create(r.path(name + ".cdx.json"))
	if err != nil {
		return err
	}
	defer func() {
		if failed := file.Close(); err == nil {
			err = failed
		}
	}()
	return cyclonedx.NewBOMEncoder(file, cyclonedx.BOMFileFormatJSON).SetPretty(true).Encode(bom)
}
