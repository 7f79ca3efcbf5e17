// Package version holds the version of Hopfeed.
package version

// Version is what hopfeed --version prints and manifests name as their tool.
const Version = "0.1.0"
