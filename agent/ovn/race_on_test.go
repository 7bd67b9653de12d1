//go:build race

package ovn

const raceDetector = true
