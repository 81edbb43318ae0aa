package pgserver

import (
	"errors"
	"os"
	"os/exec"
	"os/user"
	"strconv"
	"syscall"
)

// serverUser is who the server runs as: PostgreSQL refuses root. Nil stands for the user of this process.
func serverUser() (*syscall.Credential, error) {
	if os.Getuid() != 0 {
		return nil, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		if found, err := user.Lookup(name); err == nil {
			uid, _ := strconv.ParseUint(found.Uid, 10, 32)
			gid, _ := strconv.ParseUint(found.Gid, 10, 32)
			return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
		}
	}
	return nil, errors.New("pgserver: PostgreSQL does not run as root, and there is no user postgres or nobody")
}

// giveToServer makes a file or directory the server's own.
func giveToServer(path string) error {
	credential, err := serverUser()
	if err != nil || credential == nil {
		return err
	}
	return os.Chown(path, int(credential.Uid), int(credential.Gid))
}

// command is exec.Command as the server's user.
func command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(name, args...)
	credential, _ := serverUser()
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: credential, Setpgid: true}
	cmd.Dir = os.TempDir() // one that every user may enter
	return cmd
}
