package report

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strings"
	"time"
)

// NewOrigin returns the origin of what this process measures now. serverInfo is the server's INFO.
func NewOrigin(serverInfo string) Origin {
	return Origin{
		Date: time.Now().UTC().Format(time.DateOnly), Commit: commit(),
		Server:  ServerName(serverInfo),
		Machine: machine(), Go: strings.TrimPrefix(runtime.Version(), "go"),
	}
}

// ServerName returns the name and version of a server from its INFO.
func ServerName(info string) string {
	if version := firstMatch(`valkey_version:(\S+)`, info); version != "" {
		return "Valkey " + version
	}
	return "Redis " + firstMatch(`redis_version:(\S+)`, info)
}

// machine describes the processor and the platform.
func machine() string {
	info, _ := os.ReadFile("/proc/cpuinfo") // Linux only
	name := cmp.Or(firstMatch(`model name\s*: (.+)`, string(info)), "unknown processor")
	return name + ", " + fmt.Sprintf("%d cores, %s/%s", runtime.NumCPU(), runtime.GOOS, runtime.GOARCH)
}

// commit names the commit in the working tree, with "-dirty" if code differs from it.
func commit() string {
	name, err := exec.Command("git", "describe", "--always").Output()
	if err != nil {
		return "unknown"
	}
	// The results and the report differ while the parts are measured one after another.
	clean := exec.Command("git", "diff", "--quiet", "HEAD", "--", ":/", ":(exclude,top)docs", ":(exclude,top)bench/results.json")
	if clean.Run() != nil {
		return strings.TrimSpace(string(name)) + "-dirty"
	}
	return strings.TrimSpace(string(name))
}

// firstMatch returns the first group of a pattern in a text, "" if the pattern does not match.
func firstMatch(pattern, text string) string {
	if found := regexp.MustCompile(pattern).FindStringSubmatch(text); found != nil {
		return strings.TrimSpace(found[1])
	}
	return ""
}
