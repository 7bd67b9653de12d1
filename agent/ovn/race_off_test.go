//go:build !race

package ovn

const raceDetector = false
