"""What there is to do it on: devices, links, hosts, clusters and offers."""
