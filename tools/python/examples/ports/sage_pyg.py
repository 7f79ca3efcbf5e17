# PyG's GraphSAGE and layer-wise inference on batches of Hopfeed. Needs neither pyg-lib nor torch-sparse.
import sys; from common import *
LIM=int(os.environ.get("LIM","999999"))
import copy, torch.nn.functional as F
import hopfeed; from hopfeed.torch import NeighborLoader
from torch_geometric.nn import SAGEConv
name,E=sys.argv[1],int(sys.argv[2]); seed=int(sys.argv[3]) if len(sys.argv)>3 else 0; torch.manual_seed(seed); clock=Clock()
data=pyg(name); graph=hopfeed.from_pyg(data); C=int(data.y.max())+1
train_loader=NeighborLoader(graph,input_nodes=data.train_mask,num_neighbors=[15,10],shuffle=True,batch_size=1024,seed=seed)
subgraph_loader=NeighborLoader(graph,input_nodes='all',num_neighbors=[-1],shuffle=False,batch_size=1024,features=False)
class SAGE(torch.nn.Module):
    def __init__(self):
        super().__init__(); self.convs=torch.nn.ModuleList([SAGEConv(data.num_features,64),SAGEConv(64,C)])
    def forward(self,x,blocks):
        for i,conv in enumerate(self.convs):
            x=conv((x,x[:blocks[i].destinations]),blocks[i].adj_t())
            if i<len(self.convs)-1: x=F.dropout(x.relu_(),p=0.5,training=self.training)
        return x
    @torch.no_grad()
    def inference(self,x_all):
        for i,conv in enumerate(self.convs):
            xs=[]
            for batch in subgraph_loader:
                x=conv((x_all[batch.n_id],x_all[batch.n_id[:batch.batch_size]]),batch.blocks[0].adj_t())
                if i<len(self.convs)-1: x=x.relu_()
                xs.append(x[:batch.batch_size])
            x_all=torch.cat(xs)
        return x_all
model=SAGE(); optimizer=torch.optim.Adam(model.parameters(),lr=0.01)
def train():
    model.train()
    for _,batch in zip(range(LIM),train_loader):
        optimizer.zero_grad(); y=batch.y[:batch.batch_size]
        loss=F.cross_entropy(model(batch.x,batch.blocks),y); loss.backward(); optimizer.step()
for e in range(E):
    with clock: train()
model.eval(); t=time.time(); p=model.inference(data.x).argmax(-1); inf=time.time()-t
clock.done(inference=round(inf,2),test=round(float((p==data.y)[data.test_mask].float().mean()),4),val=round(float((p==data.y)[data.val_mask].float().mean()),4))
