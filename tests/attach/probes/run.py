import json, os, sys, time, tempfile
from pathlib import Path
def main():
    t0=time.time()
    import vllm
    from vllm import EngineArgs, LLMEngine, SamplingParams
    from attach.stub import StubExecutor, write_model, next_token, Options
    t1=time.time()
    with tempfile.TemporaryDirectory() as f:
        e = LLMEngine.from_engine_args(EngineArgs(model=str(write_model(Path(f))), load_format="dummy", dtype="float32", enforce_eager=True, block_size=16, max_model_len=512,
          num_gpu_blocks_override=int(sys.argv[1]) if len(sys.argv)>1 else 40, max_num_batched_tokens=512, max_num_seqs=8, enable_prefix_caching=True, distributed_executor_backend=StubExecutor))
        t2=time.time()
        prompts={f"q{i}": [1000+j for j in range(48)]+[2000+97*i+j for j in range(60)] for i in range(8)}
        p=SamplingParams(temperature=0,max_tokens=60,ignore_eos=True,detokenize=False)
        for n,t in prompts.items(): e.add_request(n,{"prompt_token_ids":t},p)
        steps=0; out={}; lag=0
        while e.has_unfinished_requests():
            o=e.step(); steps+=1
            lag += not o
            for x in o: out[x.request_id]=list(x.outputs[0].token_ids)
        ok=all(out[n]==[next_token(t,len(t)+k) for k in range(60)] for n,t in prompts.items())
        core=getattr(getattr(e,"engine_core",None),"engine_core",None)
        r=dict(version=vllm.__version__, steps=steps, empty=lag, ok=ok, imp=round(t1-t0,1), start=round(t2-t1,1), run=round(time.time()-t2,1))
        if core: s=core.scheduler; r|=dict(sched=type(s).__name__, groups=len(s.kv_cache_config.kv_cache_groups), free=s.kv_cache_manager.block_pool.get_num_free_blocks())
        print(json.dumps(r),flush=True)
        del e
if __name__=="__main__": main()
