//go:build linux || darwin || freebsd

package disk

import "syscall"

// Of returns the space of the file system that holds a path. ok is false if it is unknown.
func Of(path string) (s Space, ok bool) {
	var fs syscall.Statfs_t
	if err := syscall.Statfs(path, &fs); err != nil {
		return Space{}, false
	}
	block := int64(fs.Bsize) //nolint:unconvert // its type differs between systems
	return Space{Free: int64(fs.Bavail) * block, Size: int64(fs.Blocks) * block}, true
}
