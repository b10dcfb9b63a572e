package format

// hostMark ends the stamp of a file where a host is recorded; its name follows.
const hostMark = "\nhost "

// StampOf is the stamp of a file of a host; with host "" it is the stamp alone.
func StampOf(stamp, host string) string {
	if host == "" {
		return stamp
	}
	return stamp + hostMark + host
}
