"""Networks trained by DP-SGD, over one owner or over split rows."""
