package dynamostore_test

import (
	"bufio"
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-idem/idem/core"
	"github.com/go-idem/idem/core/driver"
	"github.com/go-idem/idem/core/dynamostore"
	"github.com/go-idem/idem/internal/dynalite"
	"github.com/go-idem/idem/internal/servicetest"
	"github.com/go-idem/idem/internal/tied"
)

// The variables of the environment that make a process of the tests the owner of a claim.
const (
	ownerURL   = "DYNAMOSTORE_URL"
	ownerTable = "DYNAMOSTORE_TABLE"
	ownerKey   = "DYNAMOSTORE_KEY"
)

// patientLease is long beside what a call takes on a busy machine, where other tests use the same server.
const patientLease = 4 * time.Second

// crashConfig is the configuration of an engine whose process may be killed.
func crashConfig(store driver.Store) core.Config {
	cfg := core.Config{Store: store, Scope: core.SingleTenant, Lease: core.LeaseConfig{Duration: patientLease}}
	cfg.Limits.StoreTimeout = patientLease / 2
	return cfg
}

// hangs handles one request, which does not end, and prints a line when it runs.
func hangs(url, table, key string) error {
	engine, err := core.New(crashConfig(dynamostore.New(newClient(url), table)))
	if err != nil {
		return err
	}
	_, err = engine.Do(ctx, servicetest.Order(key), func(context.Context) (*core.Response, error) {
		fmt.Println("runs")
		select {}
	})
	return err
}

func TestAProcessThatIsKilledIsTakenOverByAnotherAfterItsLease(t *testing.T) {
	t.Parallel()
	table, key := newTable(t), rand.Text()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), ownerURL+"="+dynalite.Shared(t).URL, ownerTable+"="+table.name, ownerKey+"="+key)
	output, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, tied.Start(cmd, syscall.SIGKILL))
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	line, err := bufio.NewReader(output).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "runs\n", line)

	engine := servicetest.NewEngine(t, table.store(), func(c *core.Config) { *c = crashConfig(c.Store) })
	var run core.Run
	send := func() int {
		result, err := engine.Do(ctx, servicetest.Order(key), func(ctx context.Context) (*core.Response, error) {
			run, _ = core.FromContext(ctx)
			return &core.Response{Status: 201}, nil
		})
		require.NoError(t, err)
		return result.Response.Status
	}
	for began := time.Now(); time.Since(began) < patientLease*5/2; time.Sleep(100 * time.Millisecond) {
		require.Equal(t, http.StatusConflict, send(), "the owner lives")
	}
	require.NoError(t, cmd.Process.Kill())
	killed := time.Now()
	require.Eventually(t, func() bool { return send() == http.StatusCreated }, 20*time.Second, 50*time.Millisecond)
	assert.Less(t, time.Since(killed), 10*time.Second, "the lease is four seconds")
	assert.True(t, run.Takeover)
	assert.Equal(t, 2, run.Attempt)
}
