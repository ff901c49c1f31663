"""Commands for runs that users train themselves: send, import and judge them."""
