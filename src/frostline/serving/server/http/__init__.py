"""What stands between the network and the routes: sockets that time out, tokens, bodies with a limit."""
