#!/bin/bash
set -e
printf 'blacklist nouveau\noptions nouveau modeset=0\n' | sudo tee /etc/modprobe.d/blacklist-nouveau.conf
sudo update-initramfs -u
sudo apt-get install -y nvidia-driver-580-server-open
sudo apt-mark hold nvidia-driver-580-server-open
nvidia-smi --query-gpu=name,driver_version --format=csv
