#!/usr/bin/env python3
"""Semantic renames by rust-analyzer. usage: ra_rename.py ROOT LIST
LIST lines:  path  kind  Old  New     (kind: type|fn|mod|variant|field|const)   '#' comments
For mod: path is the file that has `mod Old;`."""
import json, os, re, subprocess, sys, threading, queue, time, urllib.parse
root = os.path.abspath(sys.argv[1]); lst = sys.argv[2]
p = subprocess.Popen(["rust-analyzer"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=root)
q = queue.Queue(); responses = {}; quiescent = threading.Event()
def send(m):
    b = json.dumps(m).encode(); p.stdin.write(b"Content-Length: %d\r\n\r\n" % len(b) + b); p.stdin.flush()
def reader():
    while True:
        n = 0
        while True:
            line = p.stdout.readline()
            if not line: return
            if line == b"\r\n": break
            if line.lower().startswith(b"content-length"): n = int(line.split(b":")[1])
        m = json.loads(p.stdout.read(n))
        if "id" in m and "method" in m:
            r = None
            if m["method"] == "workspace/configuration": r = [CFG for _ in m["params"]["items"]]
            send({"jsonrpc":"2.0","id":m["id"],"result":r})
        elif "id" in m: responses[m["id"]] = m; q.put(m["id"])
        elif m.get("method") == "experimental/serverStatus":
            print("status", m["params"].get("health"), m["params"].get("quiescent"), (m["params"].get("message") or "")[:200], file=sys.stderr)
            if m["params"].get("quiescent"): quiescent.set()
            else: quiescent.clear()
CFG = {"cargo":{"features":"all","targetDir":True},"checkOnSave":False,"procMacro":{"enable":True},"cachePriming":{"enable":True}}
threading.Thread(target=reader, daemon=True).start()
_id = 0
def req(method, params, timeout=600):
    global _id; _id += 1; me = _id
    send({"jsonrpc":"2.0","id":me,"method":method,"params":params})
    end = time.time()+timeout
    while me not in responses:
        if time.time() > end: raise SystemExit("timeout "+method)
        time.sleep(0.01)
    return responses.pop(me)
def uri(path): return "file://" + urllib.parse.quote(path)
def unuri(u): return urllib.parse.unquote(u[len("file://"):])
req("initialize", {"processId":os.getpid(),"rootUri":uri(root),"workspaceFolders":[{"uri":uri(root),"name":"x"}],
 "initializationOptions":CFG,
 "capabilities":{"general":{"positionEncodings":["utf-8"]},"experimental":{"serverStatusNotification":True},
  "workspace":{"workspaceEdit":{"documentChanges":True,"resourceOperations":["create","rename","delete"]},"configuration":True,"didChangeWatchedFiles":{"dynamicRegistration":False}},
  "textDocument":{"rename":{"prepareSupport":True}}}})
send({"jsonrpc":"2.0","method":"initialized","params":{}})
t=time.time()
while True:
    quiescent.wait(1200); time.sleep(2)
    if quiescent.is_set(): break
print("ready after %.0fs" % (time.time()-t), file=sys.stderr)
opened = {}
def did_open(path):
    text = open(path, encoding="utf-8").read()
    if path in opened:
        opened[path] += 1
        send({"jsonrpc":"2.0","method":"textDocument/didChange","params":{"textDocument":{"uri":uri(path),"version":opened[path]},"contentChanges":[{"text":text}]}})
    else:
        opened[path] = 1
        send({"jsonrpc":"2.0","method":"textDocument/didOpen","params":{"textDocument":{"uri":uri(path),"languageId":"rust","version":1,"text":text}}})
def apply_edits(path, edits):
    data = open(path,"rb").read()
    lines = data.split(b"\n"); starts=[0]
    for l in lines: starts.append(starts[-1]+len(l)+1)
    def off(pos): return starts[pos["line"]]+pos["character"]
    for e in sorted(edits, key=lambda e:(e["range"]["start"]["line"],e["range"]["start"]["character"]), reverse=True):
        data = data[:off(e["range"]["start"])]+e["newText"].encode()+data[off(e["range"]["end"]):]
    open(path,"wb").write(data)
PAT = {"type":r"\b(?:struct|enum|trait|type|union)\s+(%s)\b","fn":r"\bfn\s+(%s)\b","mod":r"\bmod\s+(%s)\b","const":r"\b(?:const|static)\s+(%s)\b","variant":r"^\s+(%s)\b\s*(?:[,({=]|$)","field":r"^\s+(?:pub(?:\([a-z ]+\))?\s+)?(%s)\s*:"}
failed=[]; done=0
for raw in open(lst):
    line = raw.split("#")[0].split()
    if not line: continue
    path, kind, old, new = line[:4]; nth = int(line[4]) if len(line)>4 else 1
    full = os.path.join(root, path)
    if not os.path.exists(full): failed.append((raw.strip(),"no file")); print("FAIL no file", raw.strip()); continue
    text = open(full, encoding="utf-8").read()
    ms = list(re.finditer(PAT[kind] % re.escape(old), text, re.M))
    if len(ms) < nth: failed.append((raw.strip(),"not found")); print("FAIL not found", raw.strip()); continue
    at = ms[nth-1].start(1)
    ln = text.count("\n",0,at); col = len(text[text.rfind("\n",0,at)+1:at].encode())
    did_open(full)
    r = req("textDocument/rename", {"textDocument":{"uri":uri(full)},"position":{"line":ln,"character":col},"newName":new})
    if "error" in r or not r.get("result"): failed.append((raw.strip(), r.get("error",{}).get("message","null"))); print("FAIL", raw.strip(), r.get("error",{}).get("message")); continue
    ops = r["result"].get("documentChanges") or [{"textDocument":{"uri":u},"edits":e} for u,e in (r["result"].get("changes") or {}).items()]
    n=0; touched=[]; watched=[]
    for op in ops:
        if op.get("kind")=="rename":
            a,b=unuri(op["oldUri"]),unuri(op["newUri"]); 
            os.makedirs(os.path.dirname(b), exist_ok=True); os.rename(a,b)
            for o in list(opened):
                if o==a or o.startswith(a+"/"):
                    send({"jsonrpc":"2.0","method":"textDocument/didClose","params":{"textDocument":{"uri":uri(o)}}}); del opened[o]
            if os.path.isdir(b):
                for d,_,fs in os.walk(b):
                    for f in fs:
                        nb=os.path.join(d,f); na=a+nb[len(b):]; watched += [(na,3),(nb,1)]
            else: watched += [(a,3),(b,1)]
        elif "edits" in op:
            f=unuri(op["textDocument"]["uri"]); apply_edits(f, op["edits"]); n+=len(op["edits"]); touched.append(f)
    watched += [(f,2) for f in touched if f not in opened]
    if watched: send({"jsonrpc":"2.0","method":"workspace/didChangeWatchedFiles","params":{"changes":[{"uri":uri(f),"type":t} for f,t in watched]}})
    for f in touched:
        if f in opened: did_open(f)
    # tell about open renamed file
    time.sleep(0.05); 
    for _ in range(600):
        if quiescent.is_set(): break
        time.sleep(0.1)
    done+=1; print("ok", path, old, "->", new, n, "edits")
    sys.stdout.flush()
print(done,"done",len(failed),"failed")
for f in failed: print("FAILED", f)
req("shutdown", None); send({"jsonrpc":"2.0","method":"exit"})
