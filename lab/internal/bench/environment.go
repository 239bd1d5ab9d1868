package bench

import (
	"bufio"
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Environment is where and when something was measured.
type Environment struct {
	Time      string    `json:"time"`
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
		Processor: processor(),
		Governor:  firstLine("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
		HugePages: firstLine("/sys/kernel/mm/transparent_hugepage/enabled"),
		Clock:     firstLine("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
	}
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		e.Kernel = unix.ByteSliceToString(u.Release[:])
	}
	load := make([]float64, 3)
	if _, err := fmt.Sscan(firstLine("/proc/loadavg"), &load[0], &load[1], &load[2]); err == nil {
		e.Load = load
	}
	return e
}

// processor is the model that the kernel tells (proc(5), cpuinfo).
func processor() string {
	f, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return ""
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if key, value, ok := strings.Cut(lines.Text(), ":"); ok && strings.TrimSpace(key) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// firstLine of a file, empty if there is none.
func firstLine(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	line, _, _ := strings.Cut(string(b), "\n")
	return line
}
