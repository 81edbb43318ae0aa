package sqlitestore

import (
	"fmt"
	"syscall"

	"github.com/go-idem/idem/core/driver"
)

// lowDisk is how many free bytes on the disk Check reports.
const lowDisk = 64 << 20

// remote are the numbers of file systems that are, or may be, on another machine.
var remote = map[int64]string{
	0x6969: "nfs", 0xff534d42: "cifs", 0xfe534d42: "smb2", 0x517b: "smb", 0x01021997: "9p", 0x65735546: "fuse",
	0x5346414f: "afs", 0xc36400: "ceph",
}

// checkDisk checks the disk of a file.
func checkDisk(path string) (findings []driver.Finding) {
	var disk syscall.Statfs_t
	if err := syscall.Statfs(path, &disk); err != nil {
		return nil
	}
	if name, isRemote := remote[int64(disk.Type)&0xffffffff]; isRemote {
		findings = append(findings, driver.Finding{
			Setting: "the file system of " + path, Found: name, Fix: "put the file on a disk of this machine",
			Why: "locks may not hold between machines: handlers can run twice, and the file can be damaged",
		})
	}
	if free := disk.Bavail * uint64(disk.Bsize); free < lowDisk {
		findings = append(findings, driver.Finding{
			Setting: "the disk of " + path, Found: fmt.Sprintf("%d bytes free", free),
			Why: "a full disk refuses new keys, and can keep outcomes from being stored",
			Fix: "free space, or set MaxBytes below what is left",
		})
	}
	return findings
}
