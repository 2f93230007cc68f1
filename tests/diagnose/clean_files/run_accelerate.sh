CUDA_VISIBLE_DEVICES=0,1,2,3 accelerate launch --config_file fsdp2.yaml --num_processes 4 train_full.py --lr 1e-5
