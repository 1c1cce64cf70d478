package sqlite

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// Magic numbers of statfs(2) for file systems on which SQLite's locks or shared memory are unreliable, because another
// computer may use the file.
var remote = map[int64]string{
	0x6969:     "NFS",
	0x517b:     "SMB",
	0xff534d42: "CIFS",
	0xfe534d42: "SMB2",
	0x564c:     "NCP",
	0x5346414f: "AFS",
	0x00c36400: "Ceph",
	0x0bd00bd0: "Lustre",
	0x47504653: "GPFS",
	0x7461636f: "OCFS2",
	0x01161970: "GFS2",
	0x19830326: "BeeGFS",
	0x786f4256: "a shared folder of VirtualBox",
	0xbacbacbc: "a shared folder of VMware",
	0x7c7c6673: "a shared folder of Parallels",
	fuse:       "FUSE",
}

const fuse = 0x65735546

// localFile refuses a file on a file system that other computers may also use.
func localFile(path string) error {
	var fs syscall.Statfs_t
	if err := syscall.Statfs(path, &fs); err != nil {
		return fmt.Errorf("file system of %s: %w", path, err)
	}
	magic := int64(fs.Type) & 0xffffffff
	if magic == fuse && onBlockDevice(path) {
		return nil
	}
	return localType(path, magic)
}

func localType(path string, magic int64) error {
	if name, ok := remote[magic]; ok {
		return fmt.Errorf("%s is on a network file system (%s), where SQLite can lose data: "+
			"put it on a local disk, or use a database server", path, name)
	}
	return nil
}

// onBlockDevice reports whether a file that is reached through FUSE is nevertheless on a disk of this computer, as with
// NTFS.
func onBlockDevice(path string) bool {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return false
	}
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	longest, kind := "", ""
	for _, line := range strings.Split(string(mounts), "\n") {
		before, after, _ := strings.Cut(line, " - ")
		fields, types := strings.Fields(before), strings.Fields(after)
		if len(fields) < 5 || len(types) == 0 {
			continue
		}
		point := fields[4]
		inside := point == "/" || path == point || strings.HasPrefix(path, point+"/")
		if inside && len(point) >= len(longest) {
			longest, kind = point, types[0]
		}
	}
	return kind == "fuseblk"
}
