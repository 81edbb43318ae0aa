package redistest

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/internal/tied"
)

// running tells whether there is a process of this id, and more than the memory of one.
func running(pid int) bool {
	command, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return err == nil && len(command) > 0
}

func TestEveryEngineStartsInTimeAndLeavesNoProcess(t *testing.T) {
	Binary(t)
	var pids []int
	t.Run("engines", func(t *testing.T) {
		began := time.Now()
		servers := []*Server{Start(t)}
		group, cluster := StartGroup(t), StartCluster(t)
		took := time.Since(began)
		t.Logf("ready in %v", took)
		assert.Less(t, took, 20*time.Second)
		for _, s := range slices.Concat(servers, group.Nodes, group.Sentinels, cluster.Nodes) {
			pids = append(pids, s.process.Pid)
			assert.True(t, running(s.process.Pid))
		}
	})
	require.Len(t, pids, 1+3+3+6)
	for _, pid := range pids {
		Eventually(t, "a server has ended with its test", func() bool { return !running(pid) })
	}
}

const child = "REDISTEST_CHILD"

func TestServersDieWithTheirProcessHoweverItEnds(t *testing.T) {
	if os.Getenv(child) != "" {
		fmt.Println(Shared(t).process.Pid, Start(t).process.Pid)
		select {}
	}
	Binary(t)
	cmd := exec.Command(os.Args[0], "-test.run", "^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), child+"=1")
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, tied.Start(cmd, syscall.SIGKILL))
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	var shared, own int
	_, err = fmt.Fscan(bufio.NewReader(out), &shared, &own)
	require.NoError(t, err)
	require.True(t, running(shared) && running(own))

	require.NoError(t, cmd.Process.Kill())
	_ = cmd.Wait()
	for _, pid := range []int{shared, own} {
		Eventually(t, "a server has ended with its process", func() bool { return !running(pid) })
	}
}
