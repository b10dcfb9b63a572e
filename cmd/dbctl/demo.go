package main

type demoCmd struct{}

func (c *demoCmd) Run(a *app) error { return nil }
