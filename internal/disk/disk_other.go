//go:build !(linux || darwin || freebsd)

package disk

// Of returns the space of the file system that holds a path. ok is false if it is unknown.
func Of(string) (s Space, ok bool) { return Space{}, false }
