//go:build !race

package shm_test

// raceDetector says that everything takes ten times as long.
const raceDetector = false
