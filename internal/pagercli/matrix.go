package pagercli

import "io"

func runMatrix(out, errw io.Writer) int { return exitOK }
