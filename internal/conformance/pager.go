package main

import (
	"os"
	"time"

	"github.com/ctxpage/ctxpage/internal/pagercli"
)

func pager(args []string) int {
	return pagercli.Run(args, os.Stdin, os.Stdout, os.Stderr, time.Now)
}
