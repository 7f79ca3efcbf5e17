# DGL's GraphSAGE on blocks with layer-wise inference, on batches of Hopfeed (torch 2.2.1, dgl 2.1, numpy<2).
import sys; from common import *
LIM=int(os.environ.get("LIM","999999"))
import dgl, random, dgl.nn as dglnn, torch.nn as nn, torch.nn.functional as F
import hopfeed; from hopfeed.torch import NeighborLoader
name,E=sys.argv[1],int(sys.argv[2]); S=int(sys.argv[3]) if len(sys.argv)>3 else 0; torch.manual_seed(S); clock=Clock(); dgl.seed(S); dgl.random.seed(S)
x,ei,y,sp=arrays(name); g=dgl.graph((torch.from_numpy(np.ascontiguousarray(ei[0])),torch.from_numpy(np.ascontiguousarray(ei[1]))),num_nodes=len(x)); g.ndata['feat']=torch.from_numpy(x); g.ndata['label']=torch.from_numpy(y)
train_idx,val_idx,test_idx=(torch.from_numpy(np.flatnonzero(sp==k)) for k in range(3)); g=hopfeed.from_dgl(g); del ei; x=g.x; C=int(y.max())+1
class SAGE(nn.Module):
    def __init__(self,i,h,o): super().__init__(); self.layers=nn.ModuleList([dglnn.SAGEConv(i,h,'mean'),dglnn.SAGEConv(h,o,'mean')]); self.dropout=nn.Dropout(0.5); self.h=h; self.o=o
    def forward(self,blocks,x):
        h=x
        for l,(layer,block) in enumerate(zip(self.layers,blocks)):
            h=layer(block,h)
            if l!=len(self.layers)-1: h=self.dropout(F.relu(h))
        return h
    def inference(self,g):
        feat=g.x; loader=NeighborLoader(g,[-1],'all',batch_size=4096,shuffle=False,features=False,transform=hopfeed.Batch.to_dgl)
        for l,layer in enumerate(self.layers):
            out=torch.empty(len(g),self.o if l==1 else self.h)
            for inp,outn,blocks in loader:
                h=layer(blocks[0],feat[inp]); h=F.relu(h) if l==0 else h
                out[outn[0]:outn[-1]+1]=h
            feat=out
        return out
loader=NeighborLoader(g,[15,10],train_idx,batch_size=1024,shuffle=True,seed=S,transform=hopfeed.Batch.to_dgl)
model=SAGE(x.shape[1],64,C); opt=torch.optim.Adam(model.parameters(),lr=0.01)
for e in range(E):
    model.train()
    with clock:
        for _,(_,_,blocks) in zip(range(LIM),loader):
            loss=F.cross_entropy(model(blocks,blocks[0].srcdata['feat']),blocks[-1].dstdata['label']); opt.zero_grad(); loss.backward(); opt.step()
model.eval(); t=time.time()
with torch.no_grad(): p=model.inference(g).argmax(1)
clock.done(inference=round(time.time()-t,2),test=round(float((p[test_idx]==torch.from_numpy(y)[test_idx]).float().mean()),4))
