"""What several methods share: messages, party sides and coordinator sides of one purpose."""
