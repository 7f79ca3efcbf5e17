// Package version holds the version of Hopfeed.
package version

// Version is printed by hopfeed --version and written to manifests.
const Version = "0.1.0"
