// Command hello is a program for the tests of package scratch.
package main

var version = "none"

func main() { println("hello", version) }
