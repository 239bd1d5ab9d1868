package bench

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/trapeze-nic/trapeze/internal/command"
)

// Environment is where and when something was measured.
type Environment struct {
	Time      string    `json:"time"`
	Commit    string    `json:"commit,omitempty"`
	Processor string    `json:"processor"`
	Cores     []int     `json:"cores"`
	Kernel    string    `json:"kernel"`
	Go        string    `json:"go"`
	Load      []float64 `json:"load_average"`
	Governor  string    `json:"governor,omitempty"`
	HugePages string    `json:"transparent_huge_pages,omitempty"`
	Clock     string    `json:"clock_source,omitempty"`
}

// Surroundings describes this machine now.
func Surroundings() Environment {
	e := Environment{Time: time.Now().UTC().Format(time.RFC3339), Go: runtime.Version() + " " + runtime.GOARCH, Cores: Cores(),
		Processor: processor(), Kernel: firstLine("/proc/sys/kernel/osrelease"),
		Governor:  firstLine("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
		HugePages: firstLine("/sys/kernel/mm/transparent_hugepage/enabled"),
		Clock:     firstLine("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
	}
	b := command.Built()
	if e.Commit = b.Revision; b.Modified {
		e.Commit += " and changes"
	}
	load := make([]float64, 3)
	if _, err := fmt.Sscan(firstLine("/proc/loadavg"), &load[0], &load[1], &load[2]); err == nil {
		e.Load = load
	}
	return e
}

// processor is the model that the kernel tells (proc(5), cpuinfo).
func processor() string {
	text, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(text)) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

func firstLine(path string) string {
	b, _ := os.ReadFile(path)
	line, _, _ := strings.Cut(string(b), "\n")
	return line
}
