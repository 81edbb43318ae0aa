package main

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/internal/needs"
	"github.com/go-idem/idem/internal/redistest"
	"github.com/go-idem/idem/internal/tied"
)

// The commands of docs/proxy.md, word for word but for the ports and the installation, write what the page says.
func TestTheTwoMinutesOfTheProxyAreAsThePageSays(t *testing.T) {
	t.Parallel()
	for _, tool := range []string{"python3", "curl"} {
		if _, err := exec.LookPath(tool); err != nil {
			needs.Missing(t, "NO "+strings.ToUpper(tool)+": this test needs it on the PATH")
		}
	}
	page, err := os.ReadFile("../../docs/proxy.md")
	require.NoError(t, err)
	text := strings.NewReplacer(
		"127.0.0.1:6379", redistest.Start(t).Addr, "127.0.0.1:8080", freeAddr(t), "go -C cmd/idem install .\n", "",
	).Replace(string(page))
	service := freeAddr(t)
	_, port, err := net.SplitHostPort(service)
	require.NoError(t, err)
	text = strings.NewReplacer("127.0.0.1:3000", service, `"127.0.0.1", 3000`, `"127.0.0.1", `+port).Replace(text)
	dir := t.TempDir()
	require.NoError(t, os.Symlink(executable(t), filepath.Join(dir, "idem")))
	starts := regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(text, -1)
	require.Len(t, starts, 2)
	for _, start := range starts {
		inBackground(t, dir, strings.TrimSuffix(strings.TrimSpace(start[1]), "&"))
	}
	commands := regexp.MustCompile(`(?m)^\$ (.*)\n(.*)\n`).FindAllStringSubmatch(text, -1)
	require.Len(t, commands, 4)
	redistest.Eventually(t, "both servers listen", func() bool {
		return output(commands[3][1]) == commands[3][2] && isOpen(service)
	})
	for _, command := range commands {
		assert.Equal(t, command[2], output(command[1]), command[1])
	}
}

// executable returns the path of this program.
func executable(t *testing.T) string {
	t.Helper()
	path, err := os.Executable()
	require.NoError(t, err)
	return path
}

// freeAddr returns an address on which nobody listens.
func freeAddr(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	return listener.Addr().String()
}

// isOpen reports whether somebody listens on an address.
func isOpen(addr string) bool {
	conn, err := net.Dial("tcp", addr)
	if err == nil {
		_ = conn.Close()
	}
	return err == nil
}

// inBackground runs a script of a shell in a directory until the test ends. The last command of the script does not end by
// itself.
func inBackground(t *testing.T, dir, script string) {
	t.Helper()
	lines := strings.Split(script, "\n")
	lines[len(lines)-1] = "exec " + lines[len(lines)-1]
	cmd := exec.Command("sh", "-c", strings.Join(lines, "\n"))
	cmd.Dir, cmd.Stderr = dir, t.Output()
	cmd.Env = append(os.Environ(), isCommand+"=1", "PATH="+dir+":"+os.Getenv("PATH"))
	require.NoError(t, tied.Start(cmd, syscall.SIGKILL))
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
}

// output returns what a command writes, without the end of its last line.
func output(command string) string {
	out, _ := exec.Command("sh", "-c", command).Output()
	return strings.TrimSpace(string(out))
}
