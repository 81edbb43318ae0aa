// Command release checks that a version of the modules of this repository can be fetched and used, before anybody tags it. It
// publishes nothing, and changes neither the tree nor the module cache.
//
//	$ go -C internal/release run . -version v0.1.0
//
// It clones HEAD, removes the replace directives, and puts each module into a module proxy of files. Then it is a user: it
// fetches each module by its version, builds all packages, the programs of docs/start.md and the Go blocks of the documentation,
// and installs the command. At last it prints what changed in the API since the last tag, and the commands that publish, which
// need a patch that it writes into the directory for temporary files.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"

	"golang.org/x/mod/semver"
)

// main checks the version that the flags name. An interrupt ends the command that runs, and the temporary directory is removed.
func main() {
	version := flag.String("version", "", "the version to check, such as v0.1.0")
	tree := flag.String("tree", "../..", "the repository")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := check(ctx, os.Stdout, *tree, *version); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// check checks a version of the repository in a directory, and writes what it does to out. All work is done in a temporary
// directory, on a clone, which has what is committed and nothing else. The first step that fails ends the check.
func check(ctx context.Context, out io.Writer, tree, version string) error {
	if err := checkVersion(ctx, tree, version); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "release")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	r := &release{ctx: ctx, out: out, version: version, source: filepath.Join(dir, "source"), proxy: filepath.Join(dir, "proxy")}
	if _, err := run(ctx, tree, nil, "git", "clone", "-q", "--no-local", ".", r.source); err != nil {
		return err
	}
	if r.checked, err = run(ctx, r.source, nil, "git", "rev-parse", "HEAD"); err != nil {
		return err
	}
	if err := r.findCaches(dir); err != nil {
		return err
	}
	user := func() error { return r.use(filepath.Join(dir, "user")) }
	for _, step := range []func() error{r.publishAll, user, r.compareAPI, r.printCommands} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// checkVersion returns an error if this version of a repository must not be tagged: it is not in canonical form, the tree has
// changes that the clone would not have, the tag exists, or CHANGELOG.md does not say what is new.
func checkVersion(ctx context.Context, tree, version string) error {
	if !semver.IsValid(version) || semver.Canonical(version) != version {
		return fmt.Errorf("-version %q is no version such as v0.1.0", version)
	}
	changed, err := run(ctx, tree, nil, "git", "status", "--porcelain")
	if err != nil {
		return err
	}
	if changed != "" {
		return fmt.Errorf("the tree has changes that are in no commit: commit them first\n%s", changed)
	}
	if _, err := run(ctx, tree, nil, "git", "rev-parse", "-q", "--verify", "refs/tags/"+version); err == nil {
		return fmt.Errorf("the tag %s is there: choose the next version", version)
	}
	changes, err := os.ReadFile(filepath.Join(tree, "CHANGELOG.md"))
	if err != nil {
		return err
	}
	if !regexp.MustCompile(`(?m)^## ` + regexp.QuoteMeta(version[1:]) + `(\s|$)`).Match(changes) {
		return fmt.Errorf("CHANGELOG.md has no section \"## %s\": give the section Unreleased this name, and the date", version[1:])
	}
	return nil
}

// release is a check of one version. Its steps run one after the other, and each finds what the steps before have left in the
// clone and in the proxy.
type release struct {
	ctx     context.Context
	out     io.Writer
	version string
	source  string   // a clone of the repository
	checked string   // its commit
	proxy   string   // the module proxy
	env     []string // for commands of go
	modules []*repoModule
}

// findCaches makes the commands of go fetch from the proxy first, then from what this machine has fetched before, and then from
// where it fetches otherwise. They put it into a cache below dir, so that no other command ever sees the version. The
// proxy and the tags of the version are not public, so the public checksum database is not asked for modules of the repository.
// Commands that are installed go below dir as well.
func (r *release) findCaches(dir string) error {
	found, err := run(r.ctx, r.source, nil, "go", "env", "GOMODCACHE", "GOPROXY")
	if err != nil {
		return err
	}
	cache, others, _ := strings.Cut(found, "\n")
	root, err := run(r.ctx, r.source, nil, "go", "list", "-m")
	if err != nil {
		return err
	}
	r.env = []string{
		"GOPROXY=file://" + r.proxy + ",file://" + filepath.Join(cache, "cache", "download") + "," + others,
		"GOMODCACHE=" + filepath.Join(dir, "cache"), "GOFLAGS=-mod=mod -modcacherw", "GOWORK=off", "GONOSUMDB=" + root,
		"GOBIN=" + filepath.Join(dir, "bin"),
	}
	return nil
}

// log writes a line to the output of the check.
func (r *release) log(format string, args ...any) { fmt.Fprintf(r.out, format+"\n", args...) }

// goIn runs a command of go in a directory, with the environment that findCaches has made, and returns what it prints.
func (r *release) goIn(dir string, args ...string) (string, error) {
	return run(r.ctx, dir, r.env, "go", args...)
}

// run runs a command in a directory with more environment, and returns what it prints, without the last line end. The error of a
// command that failed has the command and what it printed, because that is what a person needs who runs the check.
func run(ctx context.Context, dir string, env []string, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	out, err := cmd.Output()
	if failed := (*exec.ExitError)(nil); errors.As(err, &failed) {
		return "", fmt.Errorf("%s %s: %w\n%s%s", name, strings.Join(args, " "), err, out, failed.Stderr)
	}
	return strings.TrimSuffix(string(out), "\n"), err
}
